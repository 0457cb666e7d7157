import os
DATA = r'C:\Users\me\data'
os.system('copy a b')
